# Gradient magnitudes against the half format's limits, one panel per cell.
# Block i-1 of the data: exponent e, weight gradients, activation gradients (percent of the non-zero values in
# [2^e, 2^(e+1))).
limit(x) = x != int(x) && x < 24 ? sprintf('%.0f', 2**x) : power(x)
first_top = 84.0 + title_line
panel_height = (height + title_line - first_top - 14.0) / panels
set multiplot
set key off
set lmargin at screen px(64)
set rmargin at screen px(width - 24)
set label 1 'Gradient magnitudes before the cast to half: '.subject.page_note \
    at screen px(24), screen py(22) noenhanced font title_font textcolor rgb ink
set label 2 'share of the non-zero values per factor of 2, at the loss scale in force' \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
set format y '%g %%'
do for [i = 1:panels] {
    top = first_top + (i - 1) * panel_height
    ends = i == panels || format_name[i] ne format_name[i < panels ? i + 1 : i]
    named = i == 1 || format_name[i] ne format_name[i > 1 ? i - 1 : 1]
    set tmargin at screen py(top)
    set bmargin at screen py(top + panel_height - title_line - (ends && i < panels ? 54 : 40))
    set xrange [low[i]:high[i]]
    set yrange [0:top_percent[i] * 1.25]
    set ytics 0, (top_percent[i] > 40 ? 20 : top_percent[i] > 20 ? 10 : 5), 100
    set xtics 10 * ceil(low[i] / 10.0), (high[i] - low[i] > 100 ? 20 : 5)
    set format x (ends ? '2^{%g}' : '')
    set label 9 (i == panels ? 'magnitude of the gradient value times the loss scale' : '') \
        at graph 0.5, screen py(height - 16) center noenhanced font small_font textcolor rgb soft
    set object 1 rectangle from low[i], graph 0 to flush_limit[i], graph 1 behind \
        fillcolor rgb vermillion fillstyle solid 0.22 noborder
    set object 2 rectangle from flush_limit[i], graph 0 to normal_limit[i], graph 1 behind \
        fillcolor rgb orange fillstyle solid 0.14 noborder
    set object 3 rectangle from max_limit[i], graph 0 to high[i], graph 1 behind \
        fillcolor rgb purple fillstyle solid 0.30 noborder
    set arrow 1 from flush_limit[i], graph 0 to flush_limit[i], graph 1 nohead \
        linecolor rgb vermillion linewidth 1.5
    set arrow 2 from subnormal_limit[i], graph 0 to subnormal_limit[i], graph 1 nohead \
        linecolor rgb orange linewidth 1 dashtype 3
    set arrow 3 from normal_limit[i], graph 0 to normal_limit[i], graph 1 nohead \
        linecolor rgb orange linewidth 1.5
    set arrow 4 from max_limit[i], graph 0 to max_limit[i], graph 1 nohead linecolor rgb purple linewidth 1.5
    set object 90 rectangle center screen px(69), screen py(top - title_line - 11) \
        size screen px(9), screen 1 - py(9) fillcolor rgb level(color_of[i]) fillstyle solid noborder
    set label 10 title[i] at screen px(80), screen py(top - title_line - 11) noenhanced font panel_font \
        textcolor rgb ink
    if (title_line > 0) {
        set label 11 weight_text[i] at graph 0, screen py(top - 11) left noenhanced font small_font \
            textcolor rgb blue
    } else {
        set label 11 weight_text[i] at screen 0.615, screen py(top - 11) right noenhanced font small_font \
            textcolor rgb blue
    }
    set label 12 activation_text[i] at graph 1, screen py(top - 11) right noenhanced font small_font \
        textcolor rgb green
    if (named) {
        flushed_text = 'flushed to 0, up to '.power(flush_limit[i])
        subnormal_text = 'subnormal, from '.power(subnormal_limit[i])
        if (normal_limit[i] - low[i] > 0.2 * (high[i] - low[i])) {
            set label 20 flushed_text at 0.5*(low[i]+flush_limit[i]), graph 0.9 center noenhanced \
                font tiny_font textcolor rgb vermillion
            set label 21 subnormal_text at 0.5*(flush_limit[i]+normal_limit[i]), graph 0.9 center noenhanced \
                font tiny_font textcolor rgb '#a06a00'
        } else {
            set label 20 flushed_text at normal_limit[i], graph 0.74 left offset 0.6,0 noenhanced \
                font tiny_font textcolor rgb vermillion
            set label 21 subnormal_text at normal_limit[i], graph 0.9 left offset 0.6,0 noenhanced \
                font tiny_font textcolor rgb '#a06a00'
        }
        normal_text = format_name[i].' normal, '.power(normal_limit[i]).' to '.limit(max_limit[i])
        if (max_limit[i] - normal_limit[i] > 0.3 * (high[i] - low[i])) {
            set label 22 normal_text at 0.5*(normal_limit[i]+max_limit[i]), graph 0.9 center noenhanced \
                font tiny_font textcolor rgb soft
        } else {
            set label 22 normal_text at normal_limit[i], graph 0.58 left offset 0.6,0 noenhanced \
                font tiny_font textcolor rgb soft
        }
        if (high[i] - max_limit[i] > 0.07 * (high[i] - low[i])) {
            set label 23 'overflow' at 0.5*(max_limit[i]+high[i]), graph 0.9 center noenhanced \
                font tiny_font textcolor rgb '#a0527d'
        } else {
            set label 23 'overflow' at max_limit[i], graph 0.9 right offset -0.6,0 noenhanced font tiny_font \
                textcolor rgb '#a0527d'
        }
    } else {
        do for [k = 20:23] { set label k '' }
    }
    plot data index i-1 using 1:3 with fillsteps \
        fillcolor rgb green fillstyle transparent solid 0.20 noborder, \
         data index i-1 using 1:2 with fillsteps \
        fillcolor rgb blue fillstyle transparent solid 0.20 noborder, \
         data index i-1 using 1:3 with steps linecolor rgb green linewidth 2, \
         data index i-1 using 1:2 with steps linecolor rgb blue linewidth 2
    unset label 1; unset label 2
}
unset multiplot
