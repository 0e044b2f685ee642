# Accuracy (or final loss) against speed. Blocks of the data: certified cells, void cells, the frontier in
# order of speed, the numbers of the cells where they hide neither points nor each other.
set key off
set lmargin at screen px(plot_left)
set rmargin at screen px(plot_right)
set tmargin at screen py(plot_top)
set bmargin at screen py(plot_bottom)
set xrange [left:right]
if (accuracy) { set yrange [bottom:top] } else { set yrange [top:bottom] }
set format y (accuracy ? '%g %%' : '%g')
set xtics autofreq
set label 1 'Accuracy against speed: '.subject.page_note at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set label 2 (accuracy ? 'test accuracy with its 95 % interval' \
    : 'final loss, better upwards, with the noise floor') \
    .'; samples/s with the range over the timing rounds' \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
set label 6 build_note[3:*] at screen px(24), screen py(60) noenhanced font small_font \
    textcolor rgb vermillion
set label 3 'samples/s' at graph 0.5, screen py(height - 16) center noenhanced font small_font \
    textcolor rgb soft
set label 4 'up and to the right is better; line: not beaten in both' \
    at screen px(width - 362), screen py(height - 40) noenhanced font tiny_font textcolor rgb soft
set label 5 'hollow: void, training not as good as that of O0' \
    at screen px(width - 362), screen py(height - 22) noenhanced font tiny_font textcolor rgb soft
do for [i = 1:rows] {
    set object 100+i circle center screen px(width - 356), screen py(plot_top + 20 * i - 10) \
        size screen px(4.5) fillcolor rgb level(color_of[i]) fillstyle solid (tone[i] ? 1 : 0.15) \
        border linecolor rgb level(color_of[i])
    set label 100+i cell[i] at screen px(width - 346), screen py(plot_top + 20 * i - 10) \
        noenhanced font small_font textcolor rgb (tone[i] ? ink : soft)
}
plot data index 2 using 1:2 with lines linecolor rgb '#9db4cc' linewidth 2, \
     data index 3 using 1:2:($3-$1):($4-$2) with vectors nohead linecolor rgb '#bbbbbb' linewidth 1, \
     data index 0 using 2:5:3:4:6:7:(level($8)) with xyerrorbars linecolor rgb variable pointtype 7 \
     pointsize 0.9 linewidth 1.4, \
     data index 1 using 2:5:3:4:6:7:(level($8)) with xyerrorbars linecolor rgb variable pointtype 6 \
     pointsize 0.9 linewidth 1.4, \
     data index 3 using 3:4 with points pointtype 5 pointsize 1.4 linecolor rgb '#ffffff', \
     data index 3 using 3:4:(sprintf('%d', $5)):(level($6)) with labels center noenhanced font small_font \
     textcolor rgb variable
